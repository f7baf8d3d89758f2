"""Published tables and figures as data: what is run at which scale, what the papers printed and claim, how it is drawn."""
