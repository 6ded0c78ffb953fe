"""Actors: what turns a stream into rows by acting on it."""
