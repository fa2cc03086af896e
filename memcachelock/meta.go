package memcachelock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// The meta commands that the store needs. Each is a request that is only written, and
// an answer that is only read, so that many can be under way at once.

// writeAdd stores the item unless there is one.
func (c *conn) writeAdd(key, value string, seconds int64) { c.writeSet(key, value, seconds, " ME") }

// writeSwap stores the item if it has not been changed.
func (c *conn) writeSwap(key, value string, seconds int64, cas uint64) {
	c.writeSet(key, value, seconds, " C"+strconv.FormatUint(cas, 10))
}

func (c *conn) writeSet(key, value string, seconds int64, how string) {
	b := c.out[:0]
	b = append(b, "ms "...)
	b = append(b, key...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(value)), 10)
	b = append(b, how...)
	b = append(b, " T"...)
	b = strconv.AppendInt(b, seconds, 10)
	b = append(b, " c\r\n"...)
	b = append(b, value...)
	b = append(b, "\r\n"...)
	c.write(b)
}

// writeDelete deletes the item if it has not been changed.
func (c *conn) writeDelete(key string, cas uint64) {
	b := append(append(c.out[:0], "md "...), key...)
	b = strconv.AppendUint(append(b, " C"...), cas, 10)
	c.write(append(b, "\r\n"...))
}

// writeGet asks for an item, or only whether there is one.
func (c *conn) writeGet(key string, value bool) {
	b := append(append(c.out[:0], "mg "...), key...)
	if value {
		b = append(b, " v c t"...)
	}
	c.write(append(b, "\r\n"...))
}

// answer is what a meta command was answered.
type answer struct {
	code  string // HD, VA, EN, NF, NS, EX
	flags []string
	value string
}

// done says that it was stored or deleted, or is there.
func (a *answer) done() bool { return a.code == "HD" || a.code == "VA" }

// cas is the number that the item has in the order of all that was ever stored.
func (a *answer) cas() uint64 {
	for _, flag := range a.flags {
		if number, ok := strings.CutPrefix(flag, "c"); ok {
			n, _ := strconv.ParseUint(number, 10, 64) // zero is refused by who asks
			return n
		}
	}
	return 0
}

// left is for how many seconds the item will be there; -1 for ever.
func (a *answer) left() int64 {
	for _, flag := range a.flags {
		if number, ok := strings.CutPrefix(flag, "t"); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return -1
}

// read reads the next answer.
func (c *conn) read() (a answer, err error) {
	line, err := c.readLine()
	if err != nil {
		return a, err
	}
	text := string(line)
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return a, fmt.Errorf("%w: an empty line", errAnswer)
	}
	switch a.code = fields[0]; a.code {
	case "HD", "EN", "NF", "NS", "EX":
		a.flags = fields[1:]
	case "VA":
		a.flags = fields[min(2, len(fields)):]
		a.value, err = c.readValue(fields)
	case "SERVER_ERROR":
		return a, refusal(strings.TrimPrefix(text, "SERVER_ERROR "))
	default:
		return a, fmt.Errorf("%w: %q", errAnswer, text)
	}
	return a, err
}

func (c *conn) readValue(fields []string) (string, error) {
	if len(fields) < 2 {
		return "", fmt.Errorf("%w: a value without a length", errAnswer)
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil || n < 0 || n > maxValue {
		return "", fmt.Errorf("%w: a value of length %q", errAnswer, fields[1])
	}
	value, err := c.readBytes(n + len("\r\n"))
	if err != nil {
		return "", err
	}
	return value[:n], nil
}

// maxValue is more than any lock has.
const maxValue = 1 << 20

// errAnswer: whatever is there, it is no memcached that is new enough.
var errAnswer = fmt.Errorf("%w: memcachelock: not an answer of memcached 1.6 or newer", driver.ErrUnreachable)

// errRefused is an answer after which the connection can be used again.
var errRefused = errors.New("memcached refused")

// refusal is an error that the server reports.
func refusal(text string) error {
	return fmt.Errorf("%w: memcachelock: %w: %s", driver.ErrUnreachable, errRefused, text)
}
