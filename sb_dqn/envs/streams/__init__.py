"""Environment streams: one adapter per kind of vector environment, all returning rows."""
