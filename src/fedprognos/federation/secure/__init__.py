"""Secure sums: the coordinator learns the total of what sites send and nothing of one site alone.

The protocol is that of Bonawitz et al. (2017, "Practical Secure Aggregation"), with double masks, secret shares and
signatures: any minority of the sites may drop out at any step.
"""
