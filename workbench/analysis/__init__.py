"""Reports of launches: findings, counts by source line, traffic by buffer, compiler stages, hints, predicted times."""
