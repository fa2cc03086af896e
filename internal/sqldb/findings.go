package sqldb

import (
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Fine returns a finding that nothing is wrong.
func Fine(check, message string) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: message}
}

// Warning returns a finding of that level.
func Warning(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelWarning, Message: fmt.Sprintf(format, args...)}
}

// Problem returns a finding of that level.
func Problem(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelProblem, Message: fmt.Sprintf(format, args...)}
}
