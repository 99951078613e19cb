# bash completion for INA's programs, from what each says to --help.

# Words of the second kind of line of a help text: options, or names below "Subcommands:".
_ina_options() {
  "$@" --help 2>/dev/null | sed -nE 's/^  (-[a-z], --[^ ]+|-[^ ]+( [A-Z]+, --[^ ]+)?).*/\1/p' |
    tr -s ', ' '\n' | sed -nE 's/^(--?[a-z][a-z0-9-]*).*/\1/p'
}

_ina_commands() {
  "$@" --help 2>/dev/null | sed -nE '/^Subcommands:/,/^$/s/^  ([a-z][a-z-]*).*/\1/p'
}

# The values that a help text lists for an option: "... : auto, spin, yield".
_ina_choices() {
  local option=$1
  shift
  "$@" --help 2>/dev/null |
    awk -v option="$option" '
      /^  -/ { found = index(" " $1 ",", option "=") || index("," $1 ",", "," option ",") || $1 == option; text = "" }
      found { text = text " " $0 }
      !/^  -/ && !/^   / { found = 0 }
      found && /: [a-z]/ { line = text }
      END { if (match(line, /: [a-z][a-z0-9-]*(, [a-z][a-z0-9-]*)+$/)) print substr(line, RSTART + 2) }' |
    tr -d ' ' | tr ',' '\n'
}

_ina() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local -a command=("${COMP_WORDS[0]}")
  type "${command[0]}" >/dev/null 2>&1 || return 0
  local commands word i
  commands=$(_ina_commands "${command[@]}")
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ -n $commands && $'\n'$commands$'\n' == *$'\n'"$word"$'\n'* ]]; then
      command+=("$word")
      commands=$(_ina_commands "${command[@]}")  # some have others below them
    fi
  done

  local words=''
  if [[ $previous == -* ]]; then
    words=$(_ina_choices "$previous" "${command[@]}")
    # Of any other value a file is the best guess.
    if [[ -z $words && $current != -* ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return 0
    fi
  fi
  if [[ -z $words ]]; then
    words=$(_ina_options "${command[@]}")
    words+=$'\n'$commands
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -o filenames -F _ina ina-switchd ina-psd ina-memif inactl ina-plan ina-run
