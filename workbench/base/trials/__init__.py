"""Tuning trials (an attempt at a configuration, with its outcome), and the store on disk that keeps every one."""
