"""Plain data and rules that every other room shares: specs, samples, options, errors, retries, random streams."""
