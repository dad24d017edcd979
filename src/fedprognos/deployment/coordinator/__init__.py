"""The coordinator's side: its queue, the handshake with the sites, and sending them the steps of a run."""
