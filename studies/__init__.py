"""From runs to committed results: the paper's experiments as JSON, and one page of tables and pictures made from it."""
