package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
)

// userTask is the task of a user.
type userTask struct {
	Service string // URL
	File    string // through which the processes share the token
	Calls   int
	Locked  bool
	Store   Store
}

// user is a process that sends messages, for which it needs a token.
type user struct {
	userTask
	client *dlock.Client // nil: without a lock
	log    processLog
}

// runUser is the program of a user.
func runUser(parent *child.Parent) error {
	var u user
	if err := parent.Receive(&u.userTask); err != nil {
		return err
	}
	if u.Locked {
		client, closeAll, err := u.Store.client(parent.Context)
		if err != nil {
			return err
		}
		defer closeAll()
		u.client = client
	}
	if err := parent.AwaitStep(true); err != nil {
		return err
	}
	if err := u.work(parent.Context); err != nil {
		return err
	}
	return parent.Send(u.log)
}

// work sends the messages. After one that fails, the next one has another token.
func (u *user) work(ctx context.Context) error {
	token, err := u.token(ctx, "")
	if err != nil {
		return err
	}
	// All messages together take longer than issuing a token, so that a user whose token was
	// made invalid notices it.
	ticker := time.NewTicker(2 * issueTime / time.Duration(u.Calls))
	defer ticker.Stop()
	defer func() { u.log.Ended = time.Now().UnixNano() }()
	for range u.Calls {
		sent, err := u.send(ctx, token)
		if err != nil {
			return err
		}
		if !sent {
			u.log.Falls = append(u.log.Falls, time.Now().UnixNano())
			if token, err = u.token(ctx, token); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// token returns the token that the processes share. If there is none, or only the refused
// one, it fetches a new one. Under the lock just one process does.
func (u *user) token(ctx context.Context, refused string) (token string, err error) {
	readOrFetch := func(ctx context.Context) (err error) {
		v := visit{From: time.Now().UnixNano(), What: "found a token"}
		defer func() {
			v.To = time.Now().UnixNano()
			u.log.Visits = append(u.log.Visits, v)
		}()
		if token, err = u.read(); err != nil || (token != "" && token != refused) {
			return err
		}
		v.What = "fetched a token"
		if token, err = u.fetch(ctx); err != nil {
			return err
		}
		return u.share(token)
	}
	if u.client == nil {
		err = readOrFetch(ctx)
	} else {
		err = u.client.Do(ctx, TokenLock, readOrFetch)
	}
	return token, err
}

func (u *user) read() (string, error) {
	text, err := os.ReadFile(u.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// share replaces the file as a whole, so that no process reads half a token.
func (u *user) share(token string) error {
	temporary := fmt.Sprintf("%s.%d", u.File, os.Getpid())
	if err := os.WriteFile(temporary, []byte(token), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, u.File)
}

func (u *user) fetch(ctx context.Context) (token string, err error) {
	_, token, err = u.request(ctx, http.MethodGet, "/token", "")
	return token, err
}

// send reports whether the message was accepted.
func (u *user) send(ctx context.Context, token string) (bool, error) {
	status, _, err := u.request(ctx, http.MethodPost, "/message", token)
	return status == http.StatusNoContent, err
}

// request returns the answer of the service. It fails if the service does.
func (u *user) request(ctx context.Context, method, path, token string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, u.Service+path, nil)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	text = strings.TrimSpace(string(body))
	switch answer.StatusCode {
	case http.StatusOK, http.StatusNoContent, http.StatusUnauthorized:
	default:
		err = fmt.Errorf("the token service: %s", text)
	}
	return answer.StatusCode, text, err
}
