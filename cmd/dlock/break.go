package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
)

func (a *app) breakCommand() *cobra.Command {
	var token uint64
	cmd := &cobra.Command{
		Use:   "break NAME --token N",
		Short: "Take a lock from its holder",
		Long: `Take NAME from the holder that has it with token N, which "dlock ls" or "dlock show"
shows. The token makes sure that this holder loses the lock and no later one. Of
several holders that share the lock, the others keep it.

The holder notices at its next renewal, within a third of its TTL: a "dlock exec"
then ends its command, first with TERM, then with KILL, and exits with 76. A holder
that is cut off from the store acts as the holder until its TTL ends. Until then two
processes can act as holders: break only the lock of a holder that hangs, or wait.

The exit status is 1 if the lock is not held with that token.`,
		Example:           `  dlock break nightly --token 7`,
		ValidArgsFunction: a.completeNames,
		Args:              arguments(1, 1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if !cmd.Flags().Changed("token") {
				return usagef("break needs --token N: it says which holder to take the lock from, see 'dlock show NAME'")
			}
			if err := driver.CheckName(name); err != nil {
				return classify(err)
			}
			return a.withClient(cmd.Context(), "", func(client *dlock.Client, _ *stores.Store) error {
				return a.breakLock(cmd.Context(), client, name, token)
			})
		},
	}
	cmd.Flags().Func("token", "the token `N` of the holder to take the lock from", func(text string) (err error) {
		if token, err = strconv.ParseUint(text, 10, 64); err != nil {
			return errors.New("want a whole number, as 'dlock show NAME' shows it")
		}
		return nil
	})
	_ = cmd.RegisterFlagCompletionFunc("token", a.completeToken) // fails for an undeclared flag only
	return cmd
}

func (a *app) breakLock(ctx context.Context, client *dlock.Client, name string, token uint64) error {
	holders, unlisted := holdersOf(ctx, client, name)
	if unlisted != nil && !errors.Is(unlisted, dlock.ErrUnsupported) {
		return unlisted
	}
	by := ""
	var others []string
	for _, info := range holders {
		if token-info.Token < max(1, client.Traits().TokenStep) { // a token of its grant
			by = " by " + info.Holder.String()
		} else {
			others = append(others, fmt.Sprintf("with token %d by %s", info.Token, info.Holder))
		}
	}
	err := client.Break(ctx, name, token)
	switch state := ": it is free"; {
	case errors.Is(err, dlock.ErrNotHeld):
		if len(others) > 0 {
			state = ": it is held " + strings.Join(others, ", ")
		} else if unlisted != nil {
			state = ""
		}
		return failf(exitNo, "%s is not held with token %d%s", terminal.Quote(name), token, state)
	case err != nil:
		return err
	}
	return terminal.Print(a.stdout, fmt.Sprintf("broke %s, held with token %d%s\n", terminal.Quote(name), token, by))
}
