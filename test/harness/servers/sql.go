package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
)

// SQL executes statements as the administrator of a database, and returns their
// output: one line per row, without headings. It is for creating users with
// limited rights, and for the interventions of operators.
func (s *Server) SQL(ctx context.Context, statements string) (string, error) {
	if s.kind.SQL == nil {
		return "", fmt.Errorf("%s has no SQL: %w", s.kind.Name, errors.ErrUnsupported)
	}
	command := s.kind.SQL(s.in, statements)
	output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s", s.kind.Name, statements, err, text)
	}
	return text, nil
}

// KillConnections ends all connections of the user in URL, as an administrator or
// a timeout might.
func (s *Server) KillConnections(ctx context.Context) error {
	if s.kind.KillConnections == "" {
		return fmt.Errorf("%s cannot end connections: %w", s.kind.Name, errors.ErrUnsupported)
	}
	_, err := s.SQL(ctx, s.kind.KillConnections)
	return err
}

// URLAs returns URL for another user. Without a password, the URL has none.
func (s *Server) URLAs(user, password string) string {
	address, err := url.Parse(s.URL())
	if err != nil {
		panic(err) // the Kind made a valid URL
	}
	address.User = url.User(user)
	if password != "" {
		address.User = url.UserPassword(user, password)
	}
	return address.String()
}
