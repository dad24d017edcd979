"""Training across data owners: clients, how questions reach them, strategies, whole runs."""
