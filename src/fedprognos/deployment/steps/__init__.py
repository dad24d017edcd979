"""The steps of a run, free of any transport: the agreed loop, the frames it is signed in, and how a site follows it."""
