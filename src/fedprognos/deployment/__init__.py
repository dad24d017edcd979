"""The same experiment on machines of their own: sites that keep their data, and a coordinator."""
