"""Privacy: what must be behind a number before it leaves, how it is hidden, and who is left out for doing harm."""
