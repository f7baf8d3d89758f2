"""One chain of cSG-MCMC's Table 1 on a GPU that is lent for a quarter of an hour: its data, the chain, the page."""
