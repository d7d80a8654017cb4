package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// qmpLimit is the timeout of QEMU's answers.
const qmpLimit = time.Minute

// qmp is a connection to QEMU's monitor, docs/interop/qmp-spec.txt there.
type qmp struct {
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
}

// dialQMP connects and leaves the negotiation mode.
func dialQMP(conn net.Conn) (*qmp, error) {
	q := &qmp{conn: conn, in: json.NewDecoder(bufio.NewReader(conn))}
	if err := conn.SetDeadline(time.Now().Add(qmpLimit)); err != nil {
		return nil, err
	}
	var greeting struct{ QMP json.RawMessage }
	if err := q.in.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("QMP greeting: %w", err)
	}
	return q, q.run("qmp_capabilities", nil)
}

// run runs a command and ignores events.
func (q *qmp) run(command string, arguments map[string]any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := q.conn.SetDeadline(time.Now().Add(qmpLimit)); err != nil {
		return err
	}
	if _, err := q.conn.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("QMP %s: %w", command, err)
	}
	for {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Class string `json:"class"`
				Desc  string `json:"desc"`
			} `json:"error"`
		}
		if err := q.in.Decode(&answer); err != nil {
			return fmt.Errorf("QMP %s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("QMP %s: %s", text, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}
