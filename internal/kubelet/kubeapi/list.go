package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// ErrTooLarge is the error of a response, or of a single event, that is larger than the
// client reads.
var ErrTooLarge = errors.New("the answer of the API server is larger than 4 MiB")

// pageSize is the number of objects of the first page of a list. Pages become smaller if
// one is too large.
const pageSize = 100

// List calls item for each object of the collection at path, which may have a query, and
// returns the version to watch from. It reads page by page, so that the collection may have
// any size. An object larger than 4 MiB is an error, ErrTooLarge. If reading takes so long
// that the API server has forgotten the version of the list, the error has StatusGone.
func (c *Client) List(
	ctx context.Context,
	path string,
	item func(json.RawMessage) error,
) (version string, err error) {
	size := pageSize
	next := "" // the token of the next page
	for {
		var page struct {
			Metadata struct{ Continue, ResourceVersion string }
			Items    []json.RawMessage
		}
		err := c.Get(ctx, pagePath(path, size, next), &page)
		if errors.Is(err, ErrTooLarge) && size > 1 { // a page of smaller size may fit
			size = max(size/4, 1)
			continue
		}
		if err != nil {
			return "", err
		}
		for _, object := range page.Items {
			if err := item(object); err != nil {
				return "", err
			}
		}
		next = page.Metadata.Continue
		if next == "" {
			return page.Metadata.ResourceVersion, nil
		}
	}
}

// pagePath returns the path of a page of a list. next is the token for this page in the page
// before it, and empty for the first page.
func pagePath(path string, size int, next string) string {
	query := url.Values{"limit": {strconv.Itoa(size)}}
	if next != "" {
		query.Set("continue", next)
	}
	// The path may have a query of its own, such as a label selector.
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + query.Encode()
}

// limitedReader fails with ErrTooLarge after left bytes.
type limitedReader struct {
	reader io.Reader
	// left is the number of bytes that may be read. A caller may set it again.
	left int
}

// Read implements io.Reader.
func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, ErrTooLarge
	}
	size := min(len(p), l.left)
	n, err := l.reader.Read(p[:size])
	l.left -= n
	return n, err
}
