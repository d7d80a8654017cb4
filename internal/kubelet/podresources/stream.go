package podresources

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
)

const (
	// maxElement is the maximum size of one element of a response: a pod, or the devices of
	// a resource in one NUMA node.
	maxElement = 4 << 20
	// maxNamed is the maximum number of IDs that a response may name, as often as it names
	// them. A longer response is an error, so that the holders are unknown: a part of them
	// would let held devices look free.
	maxNamed = 1 << 16
	// maxAllocatable is the same for the allocatable IDs, which are more.
	maxAllocatable = 1 << 17
)

var (
	errTooManyIDs = errors.New("the response names too many device IDs")
	errMalformed  = errors.New("the response is malformed")
)

// elementCodec decodes a response element by element: as a whole a response of several
// megabytes takes tens of megabytes. Responses of the API are messages with one list, in field
// 1; their other fields are skipped.
type elementCodec struct {
	encoding.CodecV2
	each func(element mem.BufferSlice) error
}

func newElementCodec(each func(element mem.BufferSlice) error) elementCodec {
	return elementCodec{encoding.GetCodecV2("proto"), each}
}

// unmarshal decodes one element into a message.
func (c elementCodec) unmarshal(element mem.BufferSlice, message any) error {
	return c.CodecV2.Unmarshal(element, message)
}

// Unmarshal calls each for every element of the response, and leaves the message empty.
func (c elementCodec) Unmarshal(data mem.BufferSlice, _ any) error {
	r := data.Reader()
	defer r.Close()
	for r.Remaining() > 0 {
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return errMalformed
		}
		length, err := binary.ReadUvarint(r)
		if err != nil {
			return errMalformed
		}
		const (
			wireVarint = 0
			wireBytes  = 2
		)
		switch {
		case tag&7 == wireVarint: // length is its value
			continue
		case tag&7 != wireBytes || length > uint64(r.Remaining()):
			return errMalformed
		case tag>>3 != 1:
			if _, err := r.Discard(int(length)); err != nil {
				return errMalformed
			}
			continue
		case length > maxElement:
			return fmt.Errorf("an element of the response has %d bytes: want at most %d", length, maxElement)
		}
		element := make([]byte, length)
		if _, err := io.ReadFull(r, element); err != nil {
			return errMalformed
		}
		if err := c.each(mem.BufferSlice{mem.SliceBuffer(element)}); err != nil {
			return err
		}
	}
	return nil
}
