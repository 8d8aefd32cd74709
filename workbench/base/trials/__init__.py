"""What was tried, on what, with which outcome: a trial, and the store on disk that keeps every one."""
