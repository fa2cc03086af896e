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

// writeStore stores an item until that second of the server's clock: if the key is free, or with
// a cas, if the present item has that number.
//
// It uses the classic commands. If memcached has no memory for the item, or finds it too large,
// its meta command deletes the present item even if it was only to add one: another owner's lock.
func (c *conn) writeStore(name, value string, expiry int64, cas uint64) {
	verb := "add "
	if cas != 0 {
		verb = "cas "
	}
	b := appendKey(append(c.scratch[:0], verb...), name)
	b = append(b, " 0 "...)
	b = strconv.AppendInt(b, expiry, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(value)), 10)
	if cas != 0 {
		b = append(b, ' ')
		b = strconv.AppendUint(b, cas, 10)
	}
	b = append(append(b, "\r\n"...), value...)
	c.write(b)
}

// writeDelete deletes the item if it has that number.
func (c *conn) writeDelete(name string, cas uint64) {
	b := appendKey(append(c.scratch[:0], "md "...), name)
	b = strconv.AppendUint(append(b, " C"...), cas, 10)
	c.write(b)
}

// What writeGet asks for.
const (
	wholeItem  = " v c t"
	itemNumber = " c"
)

// writeGet asks for an item, or a part of it.
func (c *conn) writeGet(name, what string) {
	b := appendKey(append(c.scratch[:0], "mg "...), name)
	c.write(append(b, what...))
}

// write appends a command to the output buffer. Flush returns an error.
func (c *conn) write(command []byte) {
	command = append(command, "\r\n"...)
	_, _ = c.out.Write(command)
	c.scratch = command
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
	case "STORED":
		return answer{done: true}, nil
	case "HD":
		it, err := parseFlags(rest)
		return answer{done: true, item: it}, err
	case "VA":
		it, err := c.readItem(rest)
		return answer{done: true, item: it}, err
	case "EX", "EXISTS":
		return answer{changed: true}, nil
	case "EN", "NF", "NS", "NOT_STORED", "NOT_FOUND":
		return answer{}, nil
	case "SERVER_ERROR":
		return answer{}, failed(string(rest))
	}
	return answer{}, fmt.Errorf("%w: %q", errNotMemcached, line)
}

// readItem reads an item whose line begins with its length.
func (c *conn) readItem(line []byte) (item, error) {
	length, flags, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 || n > maxValue {
		return item{}, fmt.Errorf("%w: a value of length %q", errNotMemcached, length)
	}
	it, err := parseFlags(flags)
	if err != nil {
		return it, err
	}
	c.unreadValue = n + len("\r\n")
	value, err := c.readValue()
	if err == nil {
		it.value = value[:n]
	}
	return it, err
}

// parseFlags returns the item that the flags of an answer describe.
func parseFlags(flags []byte) (it item, err error) {
	it.left = -1
	for flag := range bytes.FieldsSeq(flags) {
		switch flag[0] {
		case 'c':
			it.cas, err = strconv.ParseUint(string(flag[1:]), 10, 64)
		case 't':
			it.left, err = strconv.ParseInt(string(flag[1:]), 10, 64)
		}
		if err != nil {
			return it, fmt.Errorf("%w: a value with %q", errNotMemcached, flag)
		}
	}
	return it, nil
}
