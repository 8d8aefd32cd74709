"""What a launch did, as it is told: findings, counts by source line, traffic by buffer, stages, what to try next."""
