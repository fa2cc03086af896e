package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// LockName is the lock around the fetching.
const LockName = "dlock-demo/token"

// User is a process that sends messages, for which it needs a token.
type User struct {
	Service string // URL
	File    string // where the processes leave the token for each other
	Calls   int
	Client  *dlock.Client // nil: without a lock

	Log Log // what it has done
}

// Log is what a user has done, in Unix nanoseconds.
type Log struct {
	Visits []Visit
	Failed []int64 // messages that were refused
	Ended  int64
}

// Visit is one time inside: from before the look at the file, with the lock if there is
// one, until the token is known.
type Visit struct {
	From, To int64
	Fetched  bool
}

// between is the time from one message to the next. All of them take longer than to
// issue a token: whose token another one made invalid notices before it is done.
func (u *User) between() time.Duration { return 2 * issuing / time.Duration(u.Calls) }

// Work sends the messages. One that fails is not sent again, but the next has
// another token.
func (u *User) Work(ctx context.Context) error {
	token, err := u.token(ctx, "")
	if err != nil {
		return err
	}
	pace := time.NewTicker(u.between())
	defer pace.Stop()
	defer func() { u.Log.Ended = time.Now().UnixNano() }()
	for range u.Calls {
		sent, err := u.send(ctx, token)
		if err != nil {
			return err
		}
		if !sent {
			u.Log.Failed = append(u.Log.Failed, time.Now().UnixNano())
			if token, err = u.token(ctx, token); err != nil {
				return err
			}
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// token returns the token that the processes share. If there is none, or only the
// one that was refused, a new one is fetched: under the lock one process does it, and
// the others find what it has left.
func (u *User) token(ctx context.Context, refused string) (token string, err error) {
	lookOrFetch := func(ctx context.Context) (err error) {
		visit := Visit{From: time.Now().UnixNano()}
		defer func() {
			visit.To = time.Now().UnixNano()
			u.Log.Visits = append(u.Log.Visits, visit)
		}()
		if token, err = u.look(); err != nil || (token != "" && token != refused) {
			return err
		}
		visit.Fetched = true
		if token, err = u.fetch(ctx); err != nil {
			return err
		}
		return u.leave(token)
	}
	if u.Client == nil {
		err = lookOrFetch(ctx)
	} else {
		err = u.Client.Do(ctx, LockName, lookOrFetch)
	}
	return token, err
}

func (u *User) look() (string, error) {
	text, err := os.ReadFile(u.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// leave replaces the file as a whole, so that nobody reads half a token.
func (u *User) leave(token string) error {
	file, err := os.CreateTemp(filepath.Dir(u.File), "token-")
	if err != nil {
		return err
	}
	_, err = file.WriteString(token)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), u.File)
}

func (u *User) fetch(ctx context.Context) (string, error) {
	status, token, err := u.request(ctx, http.MethodGet, "/token", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the token service: %s", token)
	}
	return token, err
}

// send says whether the message was taken.
func (u *User) send(ctx context.Context, token string) (bool, error) {
	status, text, err := u.request(ctx, http.MethodPost, "/message", token)
	if err == nil && status != http.StatusNoContent && status != http.StatusUnauthorized {
		err = fmt.Errorf("the token service: %s", text)
	}
	return status == http.StatusNoContent, err
}

func (u *User) request(ctx context.Context, method, path, token string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, u.Service+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, strings.TrimSpace(string(body)), err
}
