"""Places with models of others: a repository of the Hugging Face hub or a folder in its form, its files, and the model among them."""
