"""When each word of a text is heard in its speech: numpy alone, whatever model speaks."""
