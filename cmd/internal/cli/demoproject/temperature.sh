# Degrees of Fahrenheit in degrees of Celsius.

celsius() {
	echo $(( ($1 - 32) * 5 / 9 ))
}
