"""Experiments: their files, who trains on what, the run and its folder, tuning."""
