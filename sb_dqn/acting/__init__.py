"""Selection of actions: networks, exploration and recurrent state, inline collection, and prediction."""
