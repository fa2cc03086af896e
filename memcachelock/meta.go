package memcachelock

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/dlock-go/dlock/driver"
)

// The commands that the store needs. Each is a request that is only written, and
// an answer that is only read, so that many can be under way at once.
//
// What is stored is stored by the classic commands. When memcached has no memory for an
// item, or finds it too large, the meta command deletes what is under the key, also if it
// was only to add: that would be the lock of somebody else.

// writeAdd stores the item until that second of the server's clock, unless there is one.
func (c *conn) writeAdd(key, value string, end int64) {
	c.writeStore("add ", key, value, end, 0)
}

// writeSwap stores the item if it has not been changed.
func (c *conn) writeSwap(key, value string, end int64, cas uint64) {
	c.writeStore("cas ", key, value, end, cas)
}

func (c *conn) writeStore(verb, key, value string, end int64, cas uint64) {
	b := append(append(c.out[:0], verb...), key...)
	b = append(b, " 0 "...)
	b = strconv.AppendInt(b, end, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(value)), 10)
	if cas != 0 {
		b = append(b, ' ')
		b = strconv.AppendUint(b, cas, 10)
	}
	b = append(b, "\r\n"...)
	b = append(b, value...)
	c.write(append(b, "\r\n"...))
	c.owed++
}

// writeDelete deletes the item if it has not been changed.
func (c *conn) writeDelete(key string, cas uint64) {
	b := append(append(c.out[:0], "md "...), key...)
	b = strconv.AppendUint(append(b, " C"...), cas, 10)
	c.write(append(b, "\r\n"...))
	c.owed++
}

// writeGet asks for an item, or only whether there is one.
func (c *conn) writeGet(key string, value bool) {
	b := append(append(c.out[:0], "mg "...), key...)
	if value {
		b = append(b, " v c t"...)
	}
	c.write(append(b, "\r\n"...))
	c.owed++
}

// answer is what a command was answered.
type answer struct {
	done    bool   // it was stored or deleted, or is there
	changed bool   // it was not, because the item has another number
	cas     uint64 // the number of the item in the order of all that was ever stored; zero is refused by who asks
	left    int64  // for how many seconds the item will be there; -1 for ever
	value   string
}

// read reads the next answer.
func (c *conn) read() (answer, error) {
	a, err := c.readAnswer()
	if !broken(err) {
		c.owed--
	}
	return a, err
}

func (c *conn) readAnswer() (answer, error) {
	line, err := c.readLine()
	if err != nil {
		return answer{}, err
	}
	code, rest, _ := bytes.Cut(line, []byte(" "))
	switch string(code) {
	case "HD", "STORED":
		return answer{done: true}, nil
	case "VA":
		return c.readItem(rest)
	case "EX", "EXISTS":
		return answer{changed: true}, nil
	case "EN", "NF", "NS", "NOT_STORED", "NOT_FOUND":
		return answer{}, nil
	case "SERVER_ERROR":
		return answer{}, refusal(string(rest))
	}
	return answer{}, fmt.Errorf("%w: %q", errAnswer, line)
}

// readItem reads an item whose line begins with its length.
func (c *conn) readItem(line []byte) (answer, error) {
	a := answer{done: true, left: -1}
	length, flags, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 || n > maxValue {
		return a, fmt.Errorf("%w: a value of length %q", errAnswer, length)
	}
	for len(flags) > 0 {
		var flag []byte
		flag, flags, _ = bytes.Cut(flags, []byte(" "))
		switch {
		case len(flag) == 0:
		case flag[0] == 'c':
			a.cas, err = strconv.ParseUint(string(flag[1:]), 10, 64)
		case flag[0] == 't':
			a.left, err = strconv.ParseInt(string(flag[1:]), 10, 64)
		}
		if err != nil {
			return a, fmt.Errorf("%w: a value with %q", errAnswer, flag)
		}
	}
	c.rest = n + len("\r\n")
	value, err := c.readRest()
	if err != nil {
		return a, err
	}
	a.value = value[:n]
	return a, nil
}

// maxValue is more than any lock has.
const maxValue = 1 << 20

// errAnswer: whatever is there, it is no memcached that is new enough.
var errAnswer = fmt.Errorf("%w: memcached: not an answer of memcached 1.6 or newer", driver.ErrUnreachable)

// errRefused is an answer after which the connection can be used again.
var errRefused = errors.New("memcached refused")

// refusal is an error that the server reports.
func refusal(text string) error {
	return fmt.Errorf("%w: memcached: %w: %s", driver.ErrUnreachable, errRefused, text)
}
