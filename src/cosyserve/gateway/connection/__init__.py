"""A client's connection that outlives one request: utterance after utterance, in any protocol."""
