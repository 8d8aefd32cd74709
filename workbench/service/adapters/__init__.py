"""Environments of others over the client of the service: each module needs the package that it is for."""
