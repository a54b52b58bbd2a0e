"""Training data for EAGLE-3 drafters, made of exactly the tokens that the target model emitted, and proven to be."""
