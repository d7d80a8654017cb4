package kubeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"
)

const (
	// maxString is the number of bytes of a string in a stream. Names have at most 253
	// bytes, and keys of annotations 317.
	maxString = 512
	// maxStreamed bounds an event of a stream. By default, etcd stores objects of up to
	// 1.5 MiB. As JSON with escapes, they may be six times as long.
	maxStreamed = 16 << 20
	// maxDepth is the depth of an object in a stream. Objects of the API have about 20
	// levels.
	maxDepth = 200
)

// Stream is Watch for objects of any size. Only the values that the callback reads are in
// memory, and strings are cut after 512 bytes. The callback reads its object with a single
// call of Fields or Value, or not at all. The first event says that the watch has begun: its
// kind is empty and its object is nil.
func (c *Client) Stream(
	ctx context.Context,
	path string,
	idle time.Duration,
	event func(kind string, object *Decoder) error,
) error {
	return c.follow(ctx, path, idle, func(body io.Reader, alive func()) error {
		limited := &limitedReader{
			reader: body,
			left:   maxStreamed,
		}
		d := newDecoder(limited)
		err := event("", nil)
		for err == nil {
			alive()
			limited.left = maxStreamed
			err = d.event(path, event)
		}
		return err
	})
}

// event reads one event.
func (d *Decoder) event(path string, event func(kind string, object *Decoder) error) error {
	if !d.json.More() {
		_, err := d.json.Token() // io.EOF, or why there is no event
		return err
	}
	kind := ""
	err := d.Fields(func(name string) error {
		switch {
		case name == "type":
			return d.Value(&kind)
		case name != "object":
			return d.Skip()
		case kind == "":
			// The API server writes the struct WatchEvent of apimachinery, whose
			// first field is the type.
			return errors.New("an event has its object before its type")
		case kind == "ERROR":
			return d.status(path)
		}
		// The callback may leave the object to this function.
		d.unread = true
		if err := event(kind, d); err != nil {
			return err
		}
		if d.unread {
			return d.Skip()
		}
		return nil
	})
	// The end of a stream is only regular between events.
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// status reads a Status object and returns its Error.
func (d *Decoder) status(path string) error {
	e := &Error{
		Method: http.MethodGet,
		Path:   path,
	}
	// The Status is read field by field, because its details may be large.
	err := d.Fields(func(name string) error {
		switch name {
		case "code":
			return d.Value(&e.Code)
		case "reason":
			return d.Value(&e.Reason)
		case "message":
			return d.Value(&e.Message)
		}
		return d.Skip()
	})
	if err != nil {
		return err
	}
	return e
}

// Decoder reads JSON value by value. Each call reads one value.
type Decoder struct {
	json *json.Decoder
	// depth counts the values around the next one, up to maxDepth.
	depth int
	// unread is set before the callback, and cleared when a value is read.
	unread bool
}

// newDecoder returns a Decoder whose strings are cut.
func newDecoder(r io.Reader) *Decoder {
	cut := &stringCutter{reader: bufio.NewReader(r)}
	return &Decoder{json: json.NewDecoder(cut)}
}

// Value decodes the next value. It is in memory as a whole.
func (d *Decoder) Value(into any) error {
	d.unread = false
	return d.json.Decode(into)
}

// Fields calls field for each field of the next value, which is an object or null. The
// function reads the value of the field with one call of a method.
func (d *Decoder) Fields(field func(name string) error) error {
	return d.within('{', '}', func() error {
		name, err := d.json.Token()
		if err != nil {
			return err
		}
		return field(name.(string)) // Token returns strings only as names of fields
	})
}

// Elements calls element for each element of the next value, which is an array or null.
// The function reads the element with one call of a method.
func (d *Decoder) Elements(element func() error) error {
	return d.within('[', ']', element)
}

// within calls each for the parts of a value between two delimiters.
func (d *Decoder) within(begin, end json.Delim, each func() error) error {
	d.unread = false
	token, err := d.json.Token()
	if err != nil || token == nil {
		return err
	}
	if token != begin {
		return fmt.Errorf("found %.20v instead of %v", token, begin)
	}
	d.depth++
	defer func() {
		d.depth--
	}()
	// Each level takes memory in the json.Decoder, which has a larger limit.
	if d.depth > maxDepth {
		return fmt.Errorf("values are nested more than %d times", maxDepth)
	}
	for d.json.More() {
		if err := each(); err != nil {
			return err
		}
	}
	token, err = d.json.Token() // the end, unless the text is invalid
	if err == nil && token != end {
		err = fmt.Errorf("found %.20v instead of %v", token, end)
	}
	return err
}

// Skip reads the next value and forgets it.
func (d *Decoder) Skip() error {
	d.unread = false
	depth := 0 // of the value's own parts
	for {
		token, err := d.json.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		if d.depth+depth > maxDepth {
			return fmt.Errorf("values are nested more than %d times", maxDepth)
		}
	}
}

// stringCutter cuts the strings in JSON after maxString bytes: a json.Decoder keeps at least
// one token in memory.
type stringCutter struct {
	reader io.Reader

	// inString is set between the quotes of a string.
	inString bool
	// length is the number of bytes of the current string so far.
	length int
	// isEscaped is set if the last byte was a backslash.
	isEscaped bool
	// hexDigits is the number of digits of a \u escape that follow.
	hexDigits int
	// isCut is set if the rest of the current string is dropped.
	isCut bool
}

// Read implements io.Reader.
func (s *stringCutter) Read(p []byte) (int, error) {
	for {
		n, err := s.reader.Read(p)
		kept := 0
		for _, b := range p[:n] {
			if s.keeps(b) {
				p[kept] = b
				kept++
			}
		}
		// Returning no byte and no error is discouraged by io.Reader.
		if kept > 0 || err != nil || len(p) == 0 {
			return kept, err
		}
	}
}

// keeps reports whether the next byte stays. A string is only cut between characters, so that
// the rest is valid JSON.
func (s *stringCutter) keeps(b byte) bool {
	if !s.inString {
		s.inString = b == '"'
		s.length = 0
		s.isCut = false
		return true
	}
	inEscape := s.isEscaped || s.hexDigits > 0
	isBoundary := !inEscape && utf8.RuneStart(b)
	if isBoundary && s.length >= maxString {
		s.isCut = true
	}
	// The state follows the grammar of strings in RFC 8259, section 7.
	switch {
	case s.isEscaped:
		s.isEscaped = false
		if b == 'u' {
			s.hexDigits = 4
		}
	case s.hexDigits > 0:
		s.hexDigits--
	case b == '\\':
		s.isEscaped = true
	case b == '"':
		s.inString = false
		return true
	}
	s.length++
	return !s.isCut
}
