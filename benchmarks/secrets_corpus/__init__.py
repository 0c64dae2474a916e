"""A labelled corpus of secrets and of what only looks like them, generated from a seed; no real secret in it.

What is labelled a secret, and what is not (the scrubber can rely on this page):

- **Credentials** of every kind are: tokens, keys, passwords, PINs, password hashes, session cookies,
  signatures of presigned URLs, webhook addresses (the part that is random), seeds of second factors.
  Without a prefix of its own a value is one by its context (a key, a header, a sentence that says so).
- **Placeholders** are not: empty values, words that say what they are (`changeme`, `your-api-key-here`,
  `tu-clave-aqui`), marks (`<TOKEN>`, `xxxx`, `****`, `...`), references to where the value lies (`${VAR}`,
  `process.env.X`, `!secret x`, `op://…`), what a manual prints: its example keys, `user:password@localhost`,
  the default login that an image is delivered with (where the password is the user name or says `example`).
- **What is public by its purpose** is not: hashes and digests, ids, UUIDs, versions, cursors, public keys and
  certificates, fingerprints, integrity hashes, encrypted values, addresses of contracts, base64 of files.
- **E-mail addresses** are, except at `example.com/org/net` and `ejemplo.com`, `noreply`/`no-reply` boxes,
  `users.noreply.github.com`, and `git@` of a host (the user name of an SSH address).
- **IP addresses** of a host are, private (RFC 1918) as well as public, IPv6 too. Not: loopback, `0.0.0.0`,
  documentation ranges (RFC 5737, 3849), masks, whole networks (`10.0.0.0/8`), public resolvers (`8.8.8.8`,
  `1.1.1.1`), and dotted versions.
- **Telephone numbers** are where the text says so or the form is international; the same digits as an order,
  an invoice or a file number are not.
- **DNI, NIE, IBAN, cards** are with the right check digit; with a wrong one they are not.
- **Host names** are when the user lists them (`HOSTS`); any other is not.

Neutral, counted neither way: user names beside a password, the header and footer lines of a key block, ids
and public halves of a key pair, the e-mail of a service account. A span covers the secret as it stands in the
text, escapes of the surrounding JSON included.
"""

from benchmarks.secrets_corpus.generate import corpus, is_heldout
from benchmarks.secrets_corpus.makers import INTERNAL_HOSTS as HOSTS
from benchmarks.secrets_corpus.templates import Case

__all__ = ["HOSTS", "Case", "corpus", "is_heldout"]
