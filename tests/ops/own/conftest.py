"""The ops of these tests live in modules beside them."""
