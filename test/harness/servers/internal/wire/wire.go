// Package wire speaks to servers over plain connections, as far as starting and inspecting
// them needs it.
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
	"time"
)

// Timeout bounds one attempt to reach a server, which may hang.
const Timeout = time.Second

// Dial connects to addr. The connection's deadline is that of ctx.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// Exchange sends a request and expects an answer that begins with want.
func Exchange(ctx context.Context, addr, request, want string) error {
	conn, err := Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	return ExchangeOver(conn, request, want)
}

// ExchangeOver is Exchange over a connection.
func ExchangeOver(conn net.Conn, request, want string) error {
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("answer %q to %q, want %q: %w", got[:n], request, want, err)
	}
	if string(got) != want {
		return fmt.Errorf("answer %q to %q, want %q", got, request, want)
	}
	return nil
}

// Redis runs one command on a connection of its own, within Timeout, and returns all strings and numbers of
// the answer, whose nesting is lost.
func Redis(ctx context.Context, addr string, args ...string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err = io.WriteString(conn, request.String())
	var answer []string
	if err == nil {
		answer, err = reply(bufio.NewReader(conn))
	}
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", strings.Join(args, " "), addr, err)
	}
	return answer, nil
}

// RedisText is Redis for a command that answers with one string.
func RedisText(ctx context.Context, addr string, args ...string) (string, error) {
	answer, err := Redis(ctx, addr, args...)
	return strings.Join(answer, "\n"), err
}

func reply(in *bufio.Reader) ([]string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty line instead of an answer")
	}
	content := line[1:]
	switch line[0] {
	case '+', ':':
		return []string{content}, nil
	case '-':
		return nil, errors.New(content)
	}
	size, err := strconv.Atoi(content)
	switch {
	case err != nil:
		return nil, fmt.Errorf("answer %q: %w", line, err)
	case size < 0:
		return nil, nil
	case line[0] == '$':
		bulk := make([]byte, size+len("\r\n"))
		_, err := io.ReadFull(in, bulk)
		return []string{string(bulk[:size])}, err
	case line[0] == '*':
		var elements []string
		for range size {
			element, err := reply(in)
			if err != nil {
				return nil, err
			}
			elements = append(elements, element...)
		}
		return elements, nil
	}
	return nil, fmt.Errorf("answer %q of an unknown type", line)
}
