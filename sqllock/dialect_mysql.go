package sqllock

// MySQL is MySQL 8 or MariaDB 10.6, or newer. It is tested with
// github.com/go-sql-driver/mysql.
var MySQL Dialect = mysql{}

type mysql struct{ sqlite }

func (mysql) String() string { return "mysql" }
