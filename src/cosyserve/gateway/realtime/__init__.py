"""OpenAI's Realtime API as far as a text-to-speech model goes: text in, audio out."""
