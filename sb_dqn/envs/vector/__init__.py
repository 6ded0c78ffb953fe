"""Vector environments made by this library, and the wrappers around them."""
