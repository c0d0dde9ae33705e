# An old file would be gone on with, so it goes first.
file(REMOVE ${FILE})
execute_process(COMMAND ${PROGRAM} ${FILE} COMMAND_ERROR_IS_FATAL ANY)
