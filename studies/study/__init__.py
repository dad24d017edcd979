"""The study of absorption: measured part by part, kept as it comes, written as JSON and as a page."""
