. ./temperature.sh
failed=0

check() {
	got=$(celsius "$1")
	if [ "$got" = "$2" ]; then
		echo "ok - $1 F are $2 C"
	else
		echo "not ok - $1 F: got $got C, want $2 C"
		failed=1
	fi
}

check 32 0
check 212 100
check -40 -40
exit $failed
