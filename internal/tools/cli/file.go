package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxInput is the largest input, in bytes. It is far above any configuration, and keeps a device
// file or an endless pipe from filling the memory.
const MaxInput = 16 << 20

// ReadInput reads a file, or standard input for "-", and returns the name of the input for
// messages. Opening or reading a named pipe may block forever.
func ReadInput(path string) (name string, text []byte, err error) {
	if path == "-" {
		const name = "standard input"
		text, err := ReadLimited(os.Stdin, MaxInput, name)
		return name, text, err
	}
	file, err := os.Open(path)
	if err != nil {
		return path, nil, err
	}
	defer file.Close()
	text, err = ReadLimited(file, MaxInput, path)
	return path, text, err
}

// ReadLimited reads an input up to a limit in bytes. An input above the limit is an error: a part
// of it would be converted without a message about the rest.
func ReadLimited(input io.Reader, limit int, name string) ([]byte, error) {
	// The additional byte distinguishes an input of exactly this size from a larger one.
	text, err := io.ReadAll(io.LimitReader(input, int64(limit)+1))
	// The error of a file repeats its path.
	var ofPath *fs.PathError
	if errors.As(err, &ofPath) {
		err = ofPath.Err
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > limit {
		return nil, fmt.Errorf("read %s: the input is larger than %d MiB", name, limit>>20)
	}
	return text, nil
}

// WritePrivate writes a file that only its owner can read, even if the file exists with another
// mode: a recording contains serial numbers, and even a redacted one needs a review. It writes to
// an existing file instead of replacing it, so that a name such as /dev/stderr works.
func WritePrivate(name string, data []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// The mode that OpenFile gets only applies to a new file.
	info, err := file.Stat()
	isRegular := err == nil && info.Mode().IsRegular()
	if isRegular { // the mode of /dev/stderr is not ours to change
		err = file.Chmod(0o600)
	}
	if err == nil {
		_, err = file.Write(data)
	}
	// Close returns errors of earlier writes on some file systems, such as NFS (close(2)).
	return errors.Join(err, file.Close())
}
