package memcachelock

import (
	"bytes"
	"fmt"
	"strconv"
)

// The commands of memcached that the store uses. Writing a command and reading its answer are
// separate, so that many commands can be sent at once.

// maxValue is more than the item of any lock needs.
const maxValue = 1 << 20

// writeStore stores an item until that second of the server's clock: if there is none, or with
// a cas, if the present item has that number.
//
// It uses the classic commands. If memcached has no memory for the item, or finds it too large,
// its meta command deletes the present item even if it was only to add one: another owner's lock.
func (c *conn) writeStore(key, value string, expiry int64, cas uint64) {
	verb := "add "
	if cas != 0 {
		verb = "cas "
	}
	b := append(append(c.scratch[:0], verb...), key...)
	b = append(b, " 0 "...)
	b = strconv.AppendInt(b, expiry, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(value)), 10)
	if cas != 0 {
		b = append(b, ' ')
		b = strconv.AppendUint(b, cas, 10)
	}
	b = append(b, "\r\n"...)
	b = append(b, value...)
	c.write(append(b, "\r\n"...))
	c.unread++
}

// writeDelete deletes the item if it has that number.
func (c *conn) writeDelete(key string, cas uint64) {
	b := append(append(c.scratch[:0], "md "...), key...)
	b = strconv.AppendUint(append(b, " C"...), cas, 10)
	c.write(append(b, "\r\n"...))
	c.unread++
}

// writeGet asks for an item, or only whether there is one.
func (c *conn) writeGet(key string, withValue bool) {
	b := append(append(c.scratch[:0], "mg "...), key...)
	if withValue {
		b = append(b, " v c t"...)
	}
	c.write(append(b, "\r\n"...))
	c.unread++
}

// answer is the answer to a command.
type answer struct {
	done    bool // the item was stored or deleted, or is there
	changed bool // it was not, because it has another number
	item    item // the item that was asked for
}

// found returns the item of an answer, or nil.
func (a *answer) found() *item {
	if !a.done {
		return nil
	}
	return &a.item
}

// read reads the next answer.
func (c *conn) read() (answer, error) {
	a, err := c.readAnswer()
	if !broken(err) {
		c.unread--
	}
	return a, err
}

func (c *conn) readAnswer() (answer, error) {
	if c.unreadValue > 0 { // of an item whose caller left
		_, err := c.readValue()
		return answer{}, err
	}
	line, err := c.readLine()
	if err != nil {
		return answer{}, err
	}
	code, rest, _ := bytes.Cut(line, []byte(" "))
	switch string(code) {
	case "HD", "STORED":
		return answer{done: true}, nil
	case "VA":
		it, err := c.readItem(rest)
		return answer{done: true, item: it}, err
	case "EX", "EXISTS":
		return answer{changed: true}, nil
	case "EN", "NF", "NS", "NOT_STORED", "NOT_FOUND":
		return answer{}, nil
	case "SERVER_ERROR":
		return answer{}, refusal(string(rest))
	}
	return answer{}, fmt.Errorf("%w: %q", errNotMemcached, line)
}

// readItem reads an item whose line begins with its length.
func (c *conn) readItem(line []byte) (item, error) {
	it := item{left: -1}
	length, flags, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 || n > maxValue {
		return it, fmt.Errorf("%w: a value of length %q", errNotMemcached, length)
	}
	for len(flags) > 0 {
		var flag []byte
		flag, flags, _ = bytes.Cut(flags, []byte(" "))
		switch {
		case len(flag) == 0:
		case flag[0] == 'c':
			it.cas, err = strconv.ParseUint(string(flag[1:]), 10, 64)
		case flag[0] == 't':
			it.left, err = strconv.ParseInt(string(flag[1:]), 10, 64)
		}
		if err != nil {
			return it, fmt.Errorf("%w: a value with %q", errNotMemcached, flag)
		}
	}
	c.unreadValue = n + len("\r\n")
	value, err := c.readValue()
	if err != nil {
		return it, err
	}
	it.value = value[:n]
	return it, nil
}
