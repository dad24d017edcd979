"""A site's side: what it answers and what it refuses, its approvals, its data, its ledger, what it keeps."""
