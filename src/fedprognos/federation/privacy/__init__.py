"""Differential privacy, where a run asks for it: clipped sums with noise, and an account of what a run spends.

A client adds the noise before anything leaves, so the promise needs nobody's honesty but its own. Under masks, where
only totals are seen, clients add parts of it that count together. It covers statistics of heads and gradients of
networks that are averaged. Moments of the columns are not covered.
"""

from fedprognos.federation.privacy.accountant import Account
from fedprognos.federation.privacy.mechanisms import Mechanism, mechanisms
from fedprognos.federation.privacy.options import Privacy, PrivacyOptions

__all__ = ["Account", "Mechanism", "Privacy", "PrivacyOptions", "mechanisms"]
