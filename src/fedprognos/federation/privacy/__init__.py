"""Differential privacy, where a run asks for it: clipped sums with noise, and an account of what a run spends.

A client adds the noise before anything leaves, so the promise needs nobody's honesty but its own. It covers statistics
of heads, which is all that methods without training send. Moments of the columns are not covered.
"""

from fedprognos.federation.privacy.accountant import Account, epsilon_of
from fedprognos.federation.privacy.mechanism import gaussian_delta, gaussian_noise, noise_for
from fedprognos.federation.privacy.options import Privacy, PrivacyOptions

__all__ = ["Account", "Privacy", "PrivacyOptions", "epsilon_of", "gaussian_delta", "gaussian_noise", "noise_for"]
