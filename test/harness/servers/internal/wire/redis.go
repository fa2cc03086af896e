package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// RedisConn speaks as much of Redis's protocol as package servers needs to set
// servers up and to inspect them.
type RedisConn struct {
	net.Conn
	in *bufio.Reader
}

// RedisError is an error reply of the server.
type RedisError string

func (e RedisError) Error() string { return string(e) }

// RedisCall runs one command on a connection of its own.
func RedisCall(ctx context.Context, addr string, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return NewRedisConn(conn).Call(args...)
}

// RedisText is RedisCall for a command that answers with a string.
func RedisText(ctx context.Context, addr string, args ...string) (string, error) {
	reply, err := RedisCall(ctx, addr, args...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("%s answers %s with %v, want a string", addr, args[0], reply)
	}
	return text, nil
}

// RedisOrder is RedisCall for a command that returns OK or an error.
func RedisOrder(ctx context.Context, addr string, args ...string) error {
	if _, err := RedisCall(ctx, addr, args...); err != nil {
		return fmt.Errorf("%s to %s: %w", strings.Join(args, " "), addr, err)
	}
	return nil
}

// NewRedisConn speaks over a connection.
func NewRedisConn(conn net.Conn) *RedisConn { return &RedisConn{conn, bufio.NewReader(conn)} }

// Call runs one command. The answer is a string, an int64, a []any of answers, or
// nil.
func (c *RedisConn) Call(args ...string) (any, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c, request.String()); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *RedisConn) reply() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty line instead of an answer")
	}
	content := line[1:]
	switch line[0] {
	case '+':
		return content, nil
	case '-':
		return nil, RedisError(content)
	case ':':
		return strconv.ParseInt(content, 10, 64)
	}
	size, err := strconv.Atoi(content)
	if err != nil {
		return nil, fmt.Errorf("answer %q: %w", line, err)
	}
	switch {
	case size < 0:
		return nil, nil
	case line[0] == '$':
		bulk := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(c.in, bulk); err != nil {
			return nil, err
		}
		return string(bulk[:size]), nil
	case line[0] == '*':
		elements := make([]any, size)
		for i := range elements {
			if elements[i], err = c.reply(); err != nil {
				return nil, err
			}
		}
		return elements, nil
	}
	return nil, fmt.Errorf("answer %q of an unknown type", line)
}
