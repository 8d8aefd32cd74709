"""What notebooks show: sources, plots. Every view has a plain-text form, so that it reads well without a browser."""
