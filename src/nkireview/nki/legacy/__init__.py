"""The legacy generation: what ``import neuronxcc.nki`` finds; a second front of the same Program."""
